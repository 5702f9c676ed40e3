"""Road 4, do both sides answer alike?  Captured statements, their digests, and how sessions lay.

``formats`` reads logs and packets into statements, ``sessions`` infers the state they ran in, ``capture`` writes them,
``digest`` groups them, ``classify`` says what a statement does.
"""
