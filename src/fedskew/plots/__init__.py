"""Pictures of runs and of federations; only reports and the command draw them, so all within may change.

They need the extra ``plot`` (matplotlib).
"""

FIGURES = {  # name -> (the function that draws it, most configurations; 0: it groups the runs itself)
    "asymmetry": ("rounds:asymmetry", 28),
    "cosine": ("rounds:cosine", 4),
    "curves": ("curves:comparison", 0),
    "drift": ("rounds:drift", 28),
    "heatmap": ("rounds:heatmap", 0),
    "oversampling": ("rounds:oversampling", 4),
    "per_class": ("rounds:per_class", 4),
    "selection": ("rounds:selection", 28),
    "tsne": ("rounds:tsne", 4),
    "weights": ("rounds:weights", 3),
}
