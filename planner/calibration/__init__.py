"""Calibration: constants of the step-time model, fitted to measured runs."""
