"""A Flower app whose clients do no work: FedAvg rounds of VALUES fp32 values, each timed by the server and its mean
checked."""
import json
import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    values = message.content["arrays"].to_numpy_ndarrays()[0]
    content = RecordDict({"arrays": ArrayRecord([values + np.float32(1)]), "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    peers = int(config["peers"])
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=peers, min_available_nodes=peers)
    arrays = ArrayRecord([np.zeros(int(config["values"]), np.float32)])
    seconds = []
    for number in range(1, int(config["rounds"]) + 2):
        begin = time.perf_counter()
        arrays = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1).arrays
        seconds.append(time.perf_counter() - begin)
        if abs(float(arrays.to_numpy_ndarrays()[0].mean()) - number) > 1e-3:
            raise SystemExit("the mean is wrong")
    with open(str(config["seconds"]), "w") as out:
        json.dump(seconds[1:], out)  # the first one waits for the clients
