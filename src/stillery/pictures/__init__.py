"""Charts as Vega-Lite specifications: one look for all of them, written as SVG and PNG."""
