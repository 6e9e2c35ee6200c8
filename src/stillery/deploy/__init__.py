"""Deployment of trained encoders: ONNX files, int8 weights, a gate that compares them with their checkpoint, speed."""
