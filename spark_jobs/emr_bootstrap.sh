#!/bin/bash
# Bootstrap action of EMR 7: migverify in a Python 3.11 environment, /opt/migverify, on every node of the cluster.
#   --bootstrap-actions 'Path=s3://BUCKET/migverify/emr_bootstrap.sh,Args=[s3://BUCKET/migverify/migverify-0.1.0-py3-none-any.whl]'
# pyspark is EMR's own; pyarrow, pandas and numpy are of versions that Spark 3.5 supports.
set -euo pipefail

wheel=${1:?the URL of the wheel of migverify}
folder=${MIGVERIFY_FOLDER:-/opt/migverify}

sudo dnf install -y -q python3.11 python3.11-pip
scratch=$(mktemp -d)
aws s3 cp --only-show-errors "$wheel" "$scratch/"
sudo python3.11 -m venv "$folder"
sudo "$folder/bin/python" -m pip install -q --no-cache-dir "$scratch/$(basename "$wheel")" \
    s3fs 'pyarrow>=15,<19' 'pandas>=2.2,<2.3' 'numpy<2'
rm -r "$scratch"
