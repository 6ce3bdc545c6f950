"""What tests share: inputs made by hand, libraries to compare with, scripts to run apart."""
