"""Proxies: a few tasks that predict the mean of a whole benchmark, fitted on imported scores."""
