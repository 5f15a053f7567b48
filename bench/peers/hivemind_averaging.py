"""Seconds of an averaging round of hivemind with VALUES fp32 values among 4 peers on loopback, 8-bit, as JSON. Its own
report of success is not believed: a round counts when the mean is right."""
import json
import multiprocessing as mp
import sys
import time

PEERS = 4


def peer(rank: int, values: int, rounds: int, first: list, ready, queue) -> None:
    import hivemind
    import torch
    from hivemind.averaging import DecentralizedAverager
    from hivemind.compression import Uniform8BitQuantization

    torch.set_num_threads(1)
    dht = hivemind.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], initial_peers=first, start=True, use_auto_relay=False,
                       use_relay=False, nat_port_map=False)
    averager = DecentralizedAverager(
        [torch.zeros(values)], dht, prefix="bench", start=True, target_group_size=PEERS, min_group_size=PEERS,
        min_matchmaking_time=0.5, request_timeout=1.0, compression=Uniform8BitQuantization(), bandwidth=1e9)
    seconds = []
    for _ in range(rounds + 2):
        with averager.get_tensors() as (x,):
            x.fill_(0).add_(torch.linspace(-1, 1, values)).add_(float(rank))
        ready.wait()
        begin = time.perf_counter()
        done = averager.step(timeout=60)
        took = time.perf_counter() - begin
        with averager.get_tensors() as (x,):
            right = abs(float(x.mean()) - (PEERS - 1) / 2) < 0.05
        if done is not None and right:
            seconds.append(took)
    if rank == 0:
        queue.put(seconds[2:])
    ready.wait()
    averager.shutdown()
    dht.shutdown()


def main() -> None:
    mp.set_start_method("fork")
    import hivemind

    values, rounds = int(sys.argv[1]), int(sys.argv[2])
    root = hivemind.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True, use_auto_relay=False, use_relay=False,
                        nat_port_map=False)
    first = [str(a) for a in root.get_visible_maddrs()]
    ready, queue = mp.Barrier(PEERS), mp.Queue()
    processes = [mp.Process(target=peer, args=(r, values, rounds, first, ready, queue)) for r in range(PEERS)]
    for p in processes:
        p.start()
    print(json.dumps(queue.get(timeout=300)))
    for p in processes:
        p.join(20)
        if p.is_alive():
            p.kill()
    root.shutdown()


if __name__ == "__main__":
    main()
