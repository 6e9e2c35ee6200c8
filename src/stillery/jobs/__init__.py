"""The jobs a user asks for, from settings to a finished run folder: fine-tune, distil, evaluate, predict, demo."""
