"""Changes that others carry: TiCDC and Debezium messages, from Kafka or from files.

``base`` has the nouns and the protocols, one module a format parses messages, ``kafka`` and ``files`` give them,
``sequence`` watches their order, ``dead_letters`` keeps what could not be decoded. Where a message leaves open what
SELECT would give (the fraction of a DATETIME, the label of an ENUM), nothing is guessed: it is a reject.
"""
