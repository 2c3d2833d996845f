"""Plans as one page: what each part shows, its drawings as plain SVG, and the page around them."""
