"""What pages share: tables and charts of suites, tasks, models, costs and comparisons."""
