"""Upstream's data-parallel engine cores with their coordinator and front ends, on one virtual clock.

The busy loops, the waves, the coordinator's loop and the choice of a core are upstream's. What is replaced are the
processes (loops take turns, see turns.py), the sockets between them (a message is there at once), the exchange of numbers
between ranks, and the GPU, as in engine.py. Two short pieces of the front end's task that reads the coordinator's socket are
transcribed; mocks.json says so.
"""

import engine  # first: the fake platform must be in place before any other vllm import
import mocks

import copy
import queue
from types import SimpleNamespace

import msgspec
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.coordinator import DPCoordinatorProc
from vllm.v1.engine.core import DPEngineCoreProc, EngineCore, EngineShutdownState
from vllm.v1.engine.core_client import DPLBAsyncMPClient
from vllm.v1.serial_utils import MsgpackEncoder

import scenario as scenarios
import trace
from turns import EndOfTime, Meeting, TurnClock, Turns

PUBLISH_FRONT, OUTPUT_BACK, PUBLISH_BACK = "publish_front", "output_back", "publish_back"


class LockstepExecutor(engine.ScriptedExecutor):
    """The GPUs of a core in lockstep: no step starts before every core has launched its own, and all end together."""

    def _submit(self, now: int, tokens: int) -> int:
        deployment = self.core.deployment
        total = sum(deployment.launches.meet(self.core.engine_index, tokens))
        if self.core.engine_index == 0:
            start = max(self.core.clock.now_us, deployment.device_free_us)
            deployment.device_free_us = start + self.scenario.base_us + self.scenario.per_token_us * total
        return deployment.device_free_us

    def execute_dummy_batch(self) -> None:
        self.core.ran_dummy = True
        self._submit(self.core.clock.now_us, 0)


class CoreFeed:
    """A core's input queue: what the front ends and the coordinator have sent and the core has not read."""

    def __init__(self, core) -> None:
        self.core, self.items = core, []

    def put(self, item) -> None:
        self.items.append(item)
        if item[0] == EngineCoreRequestType.ABORT:
            self.core.aborts_queue.put_nowait(item[1])
        if self.core.loop is not None:
            self.core.wake()

    def announce(self) -> None:
        pass

    def abort_outlives(self, request_id: str) -> bool:
        return False

    def empty(self) -> bool:
        return not self.items

    def get(self, block: bool = True):
        while not self.items:
            self.core.blocked = True
            self.core.clock.turns.wait(None)
        self.core.blocked = False
        return self.get_nowait()

    def get_nowait(self):
        if not self.items:
            raise queue.Empty
        kind, request = self.items.pop(0)
        if kind == EngineCoreRequestType.ADD:
            request = self.core.preprocess_add_request(request)
        return kind, request


class OutputQueue:
    """The output socket: messages for the coordinator and the front ends leave at once; the recorder sees the latter."""

    def __init__(self, core) -> None:
        self.core, self.kept = core, []

    def put_nowait(self, item) -> None:
        client, outputs = item
        outputs.engine_index = self.core.engine_index
        if client == -1:
            self.core.deployment.coordinator.send(OUTPUT_BACK, MsgpackEncoder().encode(outputs))
        else:
            self.core.deployment.clients[client].receive(outputs)
            self.kept.append(item)
            if self.core.deployment.front_end:
                self.core.deployment.front_end.receive(outputs)

    def empty(self) -> bool:
        return not self.kept

    def get_nowait(self):
        return self.kept.pop(0)


class CoreOfSeveral(engine.OracleCore):
    """What cores of one deployment have in common: the fields that EngineCoreProc.__init__ sets, and the recorder."""

    executor_class = engine.ScriptedExecutor

    def __init__(self, vllm_config, scenario, clock, deployment, index: int) -> None:
        self.clock, self.deployment, self.engine_index = clock, deployment, index
        self.recorder = trace.Recorder(self)
        self.recorder.core_index = index
        self.loop, self.blocked, self.ran_dummy = None, False, False
        self.engines_running = False
        self.shutdown_state = EngineShutdownState.RUNNING
        self.process_input_queue_block = True
        self.has_coordinator = True
        self.publish_dp_lb_stats = True
        self.last_counts = (0, 0)
        self.enable_fault_tolerance = False
        self.output_queue = OutputQueue(self)
        self._lockstep_fields(vllm_config)
        EngineCore.__init__(self, vllm_config, self.executor_class, log_stats=True, include_finished_set=True)
        self.model_executor.core = self
        self.input_queue = CoreFeed(self)
        self.quiet_calls = 0

    def _lockstep_fields(self, vllm_config) -> None:
        pass

    def wake(self) -> None:
        if self.blocked:
            self.clock.turns.wake(self.loop)


class IndependentCore(CoreOfSeveral):
    """A core of a dense model."""


class LockstepCore(CoreOfSeveral, DPEngineCoreProc):
    """A core of a mixture of experts: upstream's DPEngineCoreProc."""

    executor_class = LockstepExecutor

    def _lockstep_fields(self, vllm_config) -> None:
        parallel = vllm_config.parallel_config
        self.dp_rank, self.dp_size = self.engine_index, parallel.data_parallel_size
        self.dp_group = SimpleNamespace(size=lambda: parallel.data_parallel_size, core=self)
        self.prefill_schedule_interval = vllm_config.scheduler_config.prefill_schedule_interval
        self.dp_sync_interval = parallel.dp_sync_interval
        self.step_counter, self.current_wave = 0, 0
        self.pending_pause = self.ignore_start_dp_wave = False
        self.eep_scaling_state = None

    def _process_input_queue(self):
        self.recorder.flush(self._lockstep_state())
        self.ran_dummy = False
        super()._process_input_queue()

    def _lockstep_state(self) -> dict:
        state = {"wave": self.current_wave, "step": self.step_counter, "running": self.engines_running}
        return {**state, "dummy": self.ran_dummy}


class Coordinator:
    """The coordinator's sockets and poller, around upstream's loop."""

    def __init__(self, deployment) -> None:
        self.deployment, self.loop = deployment, None
        self.boxes = {name: [] for name in (PUBLISH_FRONT, OUTPUT_BACK, PUBLISH_BACK)}
        self.polling = False

    def send(self, box: str, message) -> None:
        self.boxes[box].append(message)
        if self.polling:
            self.deployment.turns.wake(self.loop)

    def run(self) -> None:
        # Every engine subscribes before the coordinator says that it is ready.
        self.boxes[PUBLISH_BACK] += [b"\x01"] * len(self.deployment.cores)
        proc = DPCoordinatorProc(len(self.deployment.cores), enable_wave_coordination=self.deployment.lockstep)
        proc.process_input_socket(PUBLISH_FRONT, OUTPUT_BACK, PUBLISH_BACK)

    def poll(self, timeout: int) -> list:
        due = self.deployment.clock.now_us + max(timeout, 0) * 1_000
        if not any(self.boxes.values()):
            self.polling = True
            self.deployment.turns.wait(due)
            self.polling = False
        return [(Socket(self, name), 1) for name, box in self.boxes.items() if box]


class Socket:
    def __init__(self, coordinator: Coordinator, name: str) -> None:
        self.coordinator, self.name = coordinator, name

    def __enter__(self):
        return self

    def __exit__(self, *problem) -> None:
        pass

    def __eq__(self, other) -> bool:
        return self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def recv(self):
        return self.coordinator.boxes[self.name].pop(0)

    def send(self, message) -> None:
        if self.name == PUBLISH_FRONT:
            for client in self.coordinator.deployment.clients:
                client.read_coordinator(message)

    def send_multipart(self, parts) -> None:
        kind, message = parts
        for core in self.coordinator.deployment.cores:
            core.input_queue.put((EngineCoreRequestType(bytes(kind)), msgspec.msgpack.decode(message)))


class FrontEnd(DPLBAsyncMPClient):
    """A front end's client without sockets: upstream chooses the core and counts what is in flight."""

    def __init__(self, deployment, index: int, count: int) -> None:
        self.deployment = deployment
        cores = len(deployment.cores)
        self.client_index, self.client_count = index, count
        self.core_engines = [index.to_bytes(2, "little") for index in range(cores)]
        self.lb_engines = [[0, 0, 0.0] for _ in range(cores)]
        self.reqs_in_flight, self.engine_inflight = {}, __import__("collections").Counter()
        self.eng_start_index = (cores * index) // count
        self.current_wave = 0
        self.engines_running = False
        self.first_req_send_socket = SimpleNamespace(send=self._first_request)
        self.resources = SimpleNamespace(engine_dead=False)

    def __del__(self) -> None:
        pass

    def _ensure_stats_update_task(self) -> None:
        pass

    def _ensure_output_queue_task(self) -> None:
        pass

    async def _first_request(self, message) -> None:
        # Transcription of what the stats task does with the message.
        kind, engine_index = msgspec.msgpack.decode(message)
        assert kind == "FIRST_REQ"
        self.engines_running = True
        target = int.from_bytes(engine_index, "little")
        self.deployment.coordinator.send(PUBLISH_FRONT, msgspec.msgpack.encode((target, self.current_wave)))

    def read_coordinator(self, message) -> None:
        # Transcription of what the stats task does with a message of the coordinator.
        counts, wave, running = msgspec.msgpack.decode(message)
        self.current_wave, self.engines_running = wave, running
        if counts is not None:
            self.lb_engines = counts

    async def _sent(self) -> None:
        pass

    def _send_input(self, kind, request, engine_identity):
        core = int.from_bytes(engine_identity, "little")
        if kind == EngineCoreRequestType.ADD:
            self.deployment.routes.append([request.request_id, core])
        self.deployment.cores[core].input_queue.put((kind, request))
        return self._sent()

    def receive(self, outputs) -> None:
        finish(DPLBAsyncMPClient.process_engine_outputs(self, outputs))


def finish(coroutine) -> None:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise RuntimeError("a coroutine of the front end waits")


class Deployment:
    def __init__(self, scenario: scenarios.Scenario, config, clients: int) -> None:
        self.scenario = scenario
        self.clock = TurnClock()
        self.turns = Turns(self.clock)
        size = config.parallel_config.data_parallel_size
        self.lockstep = config.model_config.is_moe
        self.launches, self.sums = Meeting(self.turns, size), Meeting(self.turns, size)
        self.device_free_us = 0
        self.routes: list = []
        self.sent, self.front_end = False, None
        self.coordinator = Coordinator(self)
        self.clients: list = []
        self.cores: list = []
        self.config, self.size, self.client_count = config, size, clients

    def build(self) -> None:
        for index in range(self.size):
            config = copy.deepcopy(self.config)
            parallel = config.parallel_config
            parallel.data_parallel_index = parallel.data_parallel_rank = index
            if not self.lockstep:
                parallel.reconfigure_for_independent_dp_rank()
            kind = LockstepCore if self.lockstep else IndependentCore
            self.cores.append(kind(config, self.scenario, self.clock, self, index))
        self.clients += [FrontEnd(self, index, self.client_count) for index in range(self.client_count)]

    def send_requests(self) -> None:
        adds = [(r.arrival_us, 0, i, r) for i, r in enumerate(self.scenario.requests)]
        aborts = [(a.at_us, 1, i, a) for i, a in enumerate(self.scenario.aborts)]
        turn = 0
        for at_us, is_abort, _, event in sorted(adds + aborts, key=lambda event: event[:3]):
            self.clock.advance_to(at_us)
            if self.front_end:
                engine.tell(self.front_end, event, self.request)
            if is_abort:
                for client in self.clients:
                    finish(client.abort_requests_async([event.id]))
            else:
                # The front ends take requests in turn; upstream leaves that to the kernel.
                finish(self.clients[turn % len(self.clients)].add_request_async(self.request(event)))
                turn += 1
        self.sent = True

    def request(self, event):
        return engine.engine_request(event, self.config.model_config.max_model_len)

    def run_core(self, core) -> None:
        try:
            core.run_busy_loop()
        finally:
            if self.lockstep:
                core.recorder.flush(core._lockstep_state())

    def is_over(self) -> bool:
        """Everything was sent, and every core waits for more; only the coordinator's timer goes on."""
        idle = all(core.blocked and not core.input_queue.items for core in self.cores)
        return self.sent and idle and not any(self.coordinator.boxes.values())

    def run(self) -> None:
        # Who comes first at one instant: the coordinator's timer, then requests, then the cores in order.
        self.coordinator.loop = self.turns.add(self.coordinator.run)
        self.turns.add(self.send_requests)
        for core in self.cores:
            core.loop = self.turns.add(lambda core=core: self.run_core(core))
        self.turns.is_over = self.is_over
        self.turns.run()


def all_reduce(tensor, op=None, group=None) -> None:
    core = group.core
    tensor.copy_(sum(core.deployment.sums.meet(core.engine_index, tensor.clone())))


def run(scenario: scenarios.Scenario, config, clients: int, front_end=None) -> list[str]:
    """The trace of one scenario with several cores: the header, then the lines of each core."""
    deployment = Deployment(scenario, config, clients)
    if front_end:
        assert clients == 1, "several front ends count apart from each other"
        deployment.front_end = front_end(config, deployment.size, deployment.clock)
    engine.world.install_clock(deployment.clock)
    zmq = SimpleNamespace(
        XPUB=1, PULL=2, POLLIN=1, LAST_ENDPOINT=3, Context=SimpleNamespace, Poller=lambda: SimpleNamespace(
            register=lambda *_: None, poll=lambda timeout: deployment.coordinator.poll(timeout)
        ), Socket=object,
    )
    mocks.patch("vllm.v1.engine.coordinator.zmq", zmq)
    mocks.patch("vllm.v1.engine.coordinator.make_zmq_socket", lambda path, **_: Socket(deployment.coordinator, path))
    mocks.patch("vllm.v1.engine.coordinator.time", deployment.clock)
    mocks.patch("vllm.v1.engine.coordinator.set_process_title", lambda *_: None)
    mocks.patch("torch.distributed.all_reduce", all_reduce)
    deployment.build()
    engine.observe_preemptions(lambda request_id: deployment.turns.current and running_core(deployment).recorder.preempted(request_id))
    deployment.cores[0].recorder.header(scenario)
    mocks.audit()
    deployment.run()
    header = deployment.cores[0].recorder.lines.pop(0)
    return [header, *(line for core in deployment.cores for line in core.recorder.lines), trace.line({"routes": deployment.routes})]


def running_core(deployment: Deployment):
    return next(core for core in deployment.cores if core.loop is deployment.turns.current)
