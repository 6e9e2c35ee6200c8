"""Distillation inside a training loop of one's own, or that of transformers' Trainer."""
