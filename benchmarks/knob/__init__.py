"""What each knob does, turned alone: scenarios, measures, the knobs, and the document of them."""
