"""Sparse operations with gradients, for CPU and CUDA."""
