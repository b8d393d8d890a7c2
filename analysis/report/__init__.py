"""The report: a store or a release as one page that needs nothing but a browser."""
