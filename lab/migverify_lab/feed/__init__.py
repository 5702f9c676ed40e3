"""The lab's reverse feed: TiDB is written, a carrier's messages say what changed, MySQL follows.

The lab has no TiKV, and so no TiCDC. What is real: the transactions on TiDB, their commit timestamps, the snapshots,
the messages in the documented formats, Kafka, and what is applied to MySQL. What stands in for TiCDC: the rows of a
transaction are read by its writer (``writer``) or by snapshots of small tables (``polling``), not from TiKV's log.

Use it in tests and drills::

    from migverify_lab.feed.run import feed

    with feed(pair, tmp_path, tables=["shop.*"], polled=["ops.canary"], protocol="canal-json", out="kafka") as f:
        tso = f.write("INSERT INTO shop.t VALUES (1, 'a')", "UPDATE shop.t SET v = 'b' WHERE id = 1")  # one transaction
        f.write("ALTER TABLE shop.t ADD COLUMN w INT")     # a DDL, alone
        connection = f.connect()                           # one a thread: begin, query, commit -> TSO, rollback
        f.resolved()                                       # everything committed so far was sent; returns the watermark
        f.drain()                                          # ... and is on MySQL
        f.fault("message-lost:at=2,table=t")               # names: faults.FeedFault; arguments: docs/lab.md
        f.fault_off("message-lost")
        f.faults_done, f.standing()                        # what was done; what a verification must find now
        f.servers, f.topic, f.paths, f.format              # for readers: Kafka, files, format with declared types

``out``: ``kafka`` (``servers=`` of a broker, else one is started in the folder), ``files`` (one file a partition) or
``storage`` (the storage sink's folder). ``apply=False`` leaves MySQL alone. All parameters: ``options.FeedOptions``.

A load of the lab writes through it with ``Workload(options, open_connection=f.connect)``.
"""
