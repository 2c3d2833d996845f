"""The wide area: routes and wavelengths between the sites."""
