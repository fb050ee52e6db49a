"""x"""
import argparse, sys, time
import numpy as np
from energy_callbacks.tuning.search import Search, SearchSettings
from tests.benchmarks.device_model import seeded, plain

def run(device, noise, seed, **settings):
    dice = np.random.default_rng([7, seed])
    search = Search(SearchSettings(memory_bytes=device.memory_bytes, **settings))
    while (size := search.ask()) is not None:
        search.tell(device.trial(size, dice, noise))
    return search

def loss(device, size, w):
    sizes = device.sizes()
    return float(device.cost(np.array([float(size)]), w)[0] / device.cost(sizes, w).min() - 1)

NOISES=[float(x) for x in sys.argv[2].split(',')]
for obj in sys.argv[3:]:
    for make in (seeded, plain):
      for noise in NOISES:
        out = []; t0 = time.time()
        for seed in range(20):
            d = make(seed)
            kw = {"max_trials": 14} if obj == "knee" else {}
            s = run(d, noise, seed, objective=obj, **kw)
            a = s.answer()
            n = len(s.trials)
            if obj == "largest":
                out.append((abs(a.size - d.sizes()[-1]), n, seed))
            elif obj == "knee":
                k = d.knee(); th = loss(d, a.size, 0)
                out.append((abs(a.size / k - 1) if abs(a.size-k)>1 else 0, n, seed, a.size, k, round(th,3)))
            else:
                out.append((loss(d, a.size, 1.0 if obj == "energy" else 0.0), n, seed, a.size))
        dist = sorted(o[0] for o in out)
        print(obj, make.__name__, noise, "worst %.4f median %.4f" % (dist[-1], dist[10]), "trials max", max(o[1] for o in out), "median", sorted(o[1] for o in out)[10], "in3%", sum(x<=.03 for x in dist), "in2%", sum(x<=.02 for x in dist), "%.1fs" % (time.time()-t0), flush=True)
        if "-v" in sys.argv[1]: 
            for o in sorted(out)[-8:]: print("   ", o)
