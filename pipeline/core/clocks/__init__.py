"""A node's raw clock against a broker's, from stamps of acknowledged messages: certain bounds and a best value.

`polygon` solves, `track` keeps the state of one node and broker, `closure` combines brokers, `odds` orders events.
Method and figures: docs/clocks-benchmark.md.
"""
