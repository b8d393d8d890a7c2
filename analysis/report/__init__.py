"""Report: renders a store or a release as one self-contained HTML page."""
