"""What libraries say of their models, not numbers: layers left, experts, configs."""
