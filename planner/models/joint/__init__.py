"""The joint model: sites, layout, placement, fabric and fibre as one optimum with one proof."""
