"""Where files are: on this machine or in a bucket. One protocol, and one module for each."""
