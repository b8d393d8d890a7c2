"""Layouts of a step on meshes: what each costs, as counted, predicted and measured, and what others published."""
