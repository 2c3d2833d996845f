"""Sites, layout, placement, fabric and fibre as one optimum with one proof."""
