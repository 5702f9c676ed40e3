import time
def test_x(pair):
    print(pair, flush=True); time.sleep(100)
