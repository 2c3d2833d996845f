"""What failures cost, for the checks: derived anew from the rates and the text of the formulas."""
