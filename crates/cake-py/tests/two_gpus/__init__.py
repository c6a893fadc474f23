"""Cake on two GPUs, or on two processes that share what there is: `python -m two_gpus --help`."""
