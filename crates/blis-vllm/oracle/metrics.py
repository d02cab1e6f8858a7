"""What upstream's front end counts: metrics.py [--out metrics.json.gz]

Runs scenarios with upstream's output processor, its handler of outputs and its Prometheus logger behind the engine core,
and keeps the text that a scrape would have read: after the calls named by SNAPSHOTS, and at the end. Of the text, the lines
of `vllm:` series without their descriptions and without the times at which they were made; of each snapshot, the lines that
differ from the one before.
"""

import argparse
import asyncio
import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import engine  # first: the fake platform must be in place before any other vllm import
import mocks

import msgspec
from prometheus_client import REGISTRY, generate_latest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.metrics.loggers import StatLoggerManager

import record
import scenario as scenarios

HERE = Path(__file__).resolve().parent
NAMES = (HERE / "metrics.txt").read_text().split()
SNAPSHOTS = [4**power for power in range(1, 8)]


class FrontEnd:
    """Upstream's front end without its sockets and without text: requests, outputs and aborts reach it at once."""

    def __init__(self, config, cores: int, clock) -> None:
        for module in ("vllm.v1.engine", "vllm.v1.metrics.stats", "prometheus_client.metrics"):
            mocks.patch(f"{module}.time", clock)
        self.loop, self.queue, self.waits = asyncio.new_event_loop(), asyncio.Queue(), False
        self.processor = OutputProcessor(None, log_stats=True, stream_interval=config.scheduler_config.stream_interval)
        self.llm = SimpleNamespace(
            output_handler=None,
            engine_core=SimpleNamespace(get_output_async=self._next),
            output_processor=self.processor,
            log_stats=True,
            logger_manager=StatLoggerManager(config, list(range(cores)), enable_default_loggers=False),
            renderer=SimpleNamespace(mm_processor_cache=None, stat_mm_cache=lambda: None),
        )
        self.loop.run_until_complete(self._start())
        self.snapshots, self.shown = [], []

    async def _start(self) -> None:
        AsyncLLM._run_output_handler(self.llm)
        await self._settled()

    async def _settled(self) -> None:
        while not self.waits:
            if self.llm.output_handler.done():
                raise RuntimeError("the handler of outputs has ended")
            await asyncio.sleep(0)

    async def _next(self):
        self.waits = True
        return await self.queue.get()

    async def _receive(self, outputs) -> None:
        self.waits = False
        self.queue.put_nowait(outputs)
        await self._settled()

    def receive(self, outputs) -> None:
        self.loop.run_until_complete(self._receive(outputs))

    def add(self, request) -> None:
        request = msgspec.structs.replace(request, external_req_id=request.request_id)
        collector = RequestOutputCollector(request.sampling_params.output_kind, request.request_id)
        self.processor.add_request(request, None, queue=collector)

    def abort(self, request_id: str) -> None:
        self.processor.abort_requests([request_id], internal=False)

    def returned(self, calls: int) -> None:
        if calls in SNAPSHOTS:
            self.snapshot(calls)

    def snapshot(self, calls: int | None) -> None:
        lines = [line for line in generate_latest(REGISTRY).decode().splitlines() if shows(line)]
        before = set(self.shown)
        self.snapshots.append({"calls": calls, "lines": [line for line in lines if line not in before]})
        self.shown = lines


def shows(line: str) -> bool:
    return line.startswith(("vllm:", "# TYPE vllm:")) and "_created" not in line


def scraped(name: str) -> list[dict]:
    loaded = scenarios.load(HERE / "scenarios" / f"{name}.yaml")
    front_ends = []

    def front_end(*parts):
        front_ends.append(FrontEnd(*parts))
        return front_ends[0]

    engine.run(loaded, front_end)
    front_ends[0].snapshot(None)
    return front_ends[0].snapshots


def main() -> None:
    parser = argparse.ArgumentParser(description="record what upstream's front end counts")
    parser.add_argument("--out", type=Path, default=HERE / "metrics.json.gz")
    options = parser.parse_args()
    print(f"{mocks.verify_wheel()} upstream files are as released", flush=True)
    found = {name: record.apart(scraped, name) for name in NAMES}
    body = ",\n".join(f"{json.dumps(name)}: {json.dumps(snapshots)}" for name, snapshots in found.items())
    options.out.write_bytes(gzip.compress(f"{{\n{body}\n}}\n".encode(), compresslevel=9, mtime=0))
    print(f"{len(found)} scenarios, {sum(len(snapshots) for snapshots in found.values())} snapshots")


if __name__ == "__main__":
    sys.exit(main())
