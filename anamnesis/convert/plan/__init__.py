"""What each weight is written as, and each file to the byte before it is written."""
