"""The papers' analyses of teacher and student layers."""
