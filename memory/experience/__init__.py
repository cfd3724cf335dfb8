"""The experience memory: items with learnt values, retrieved by stage (EvoKernel, arXiv 2603.10846, sections 1 to 3).

``store.ExperienceStore`` is the door. Facts and Q-values are rows of the run database and are the truth; vectors are
an index that can be built again from them.
"""
