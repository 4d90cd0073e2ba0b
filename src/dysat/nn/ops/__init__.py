"""Sparse operations with gradients: one interface (`sparse`) over torch, C and Triton."""
