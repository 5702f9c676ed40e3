"""Builds the distributions of a release, and checks them as somebody who installs them would: `make release`."""
