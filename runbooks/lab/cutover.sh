#!/bin/sh
# The hooks of a cutover on the lab's pair. On real servers a script of your own takes the same words (docs/cutover.md):
#
#   cutover.sh writes source|target stop|open
#   cutover.sh feed forward|reverse start|stop|status [all|canary]
#   cutover.sh watch reverse start|resume|stop|status
#   cutover.sh traffic source|target|none
#   cutover.sh ids
#   cutover.sh history backup|backed-up|load|loaded|unload FROM TO
#
# MIGVERIFY_LAB_DIR names the lab's folder, MIGVERIFY the command (default: migverify from PATH).
set -eu
exec ${MIGVERIFY:-migverify} lab cutover "$@"
