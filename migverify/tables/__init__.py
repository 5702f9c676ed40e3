"""Proves that both sides hold the same rows.

``schema -> pairs -> plan -> read -> compare -> diff -> confirm -> verify``: catalogs become table pairs, pairs become
plans, workers read chunks (``span``, or ``whole`` where the sides sort differently) and compare them, what differs is
located (``diff``) and read again (``confirm``), and the driver (``verify``, ``pair_run``) records it and concludes
(``outcome``). ``run`` begins and ends a run; ``engine`` runs the tasks.
"""
