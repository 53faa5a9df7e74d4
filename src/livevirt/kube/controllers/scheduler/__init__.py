"""Gives pods their nodes, as kube-scheduler does with its default settings, by priority.

- `pod`, `node`: what the decision needs of an object, read once.
- `affinity`: terms that choose nodes and terms that choose pods.
- `fleet`: nodes with running sums of what is taken, kept up to date change by change, so that a
  decision costs the number of nodes and not the number of pods.
- `fit`, `score`, `plan`: which nodes will do, which is best, and the decision. Pure.
- `controller`: watches pods and nodes, binds, and reports why a pod has to wait.

Not decided here: preemption, topology spread, host ports and where volumes can be reached.
"""
