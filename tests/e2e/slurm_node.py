"""A real Slurm on this host: munged, slurmctld and one slurmd, on ports of their own, in one folder."""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.polling import until

SCRIPTS = Path(__file__).parents[2] / "deploy" / "slurm"
_CONFIG = """
ClusterName=rootrank
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SchedulerParameters=bf_interval=1,sched_interval=1
Prolog={folder}/scripts/prolog.sh
Epilog={folder}/scripts/epilog.sh
TaskProlog={folder}/scripts/task-prolog.sh
PrologFlags=Alloc
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmNode:
    """Controller and one node. `told` is the folder that the agent watches."""

    def __init__(self, folder: Path) -> None:
        # A path of a socket may have a hundred characters.
        self.folder = folder
        self.host = socket.gethostname().split(".")[0]
        self.told = folder / "told"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Start all three and wait until the node is idle."""
        for name in ("state", "spool", "scripts", "told/jobs", "told/marks"):
            (self.folder / name).mkdir(parents=True)
        (self.told / "marks").chmod(0o1733)
        (self.folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (self.folder / "munge.key").chmod(0o400)
        for script in SCRIPTS.glob("*.sh"):
            text = script.read_text(encoding="utf-8")
            copy = self.folder / "scripts" / script.name
            copy.write_text(text.replace("/etc/rootrank/slurm.env", f"{self.folder}/slurm.env"), encoding="utf-8")
            copy.chmod(0o755)
        self.set_told(self.told)
        ports = {"controller_port": _free_port(), "daemon_port": _free_port()}
        config = _CONFIG.format(host=self.host, user=getpass.getuser(), folder=self.folder, **ports)
        (self.folder / "slurm.conf").write_text(config, encoding="utf-8")
        self._run(
            "munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", "--num-threads=2",
            f"--socket={self.folder}/munge.sock", f"--pid-file={self.folder}/munged.pid",
            f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed",
        )  # fmt: skip
        until((self.folder / "munge.sock").exists, what="munged's socket")
        self._run("slurmctld", "-D", "-f", f"{self.folder}/slurm.conf")
        self._run("slurmd", "-D", "-f", f"{self.folder}/slurm.conf", "-N", self.host)
        until(lambda: self.state() == "idle", what="an idle node", timeout_s=30)

    def set_told(self, folder: Path) -> None:
        """Have the scripts write into another folder."""
        (self.folder / "slurm.env").write_text(f"ROOTRANK_JOBS_DIR={folder}\n", encoding="utf-8")

    def state(self) -> str:
        """The node's state, as sinfo prints it."""
        asked = self._ask("sinfo", "--noheader", "--format=%T")
        return asked.strip()

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script; the number of the job."""
        path = self.folder / f"job-{secrets.token_hex(4)}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        out = self.folder / "job-%j.out"
        return self._ask("sbatch", "--parsable", f"--output={out}", *options, str(path)).strip()

    def output(self, job: str) -> str:
        """What a job printed."""
        path = self.folder / f"job-{job}.out"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def job(self, job: str) -> dict[str, str]:
        """What scontrol shows of a job."""
        words = self._ask("scontrol", "show", "job", "--oneliner", job).split()
        return dict(word.partition("=")[::2] for word in words)

    def wait_done(self, job: str) -> dict[str, str]:
        """Wait until a job has ended and the node is idle again."""
        until(lambda: self.job(job)["JobState"] in ("COMPLETED", "FAILED", "CANCELLED"), what="the end of the job")
        until(lambda: self.state() != "completing", what="the end of the epilog")
        return self.job(job)

    def stop(self) -> None:
        """End all that was started."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name: str, *arguments: str) -> None:
        binary = shutil.which(name) or f"/usr/sbin/{name}"
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes.append(
                subprocess.Popen(
                    [binary, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environment,
                    cwd=self.folder,
                )
            )  # fmt: skip

    def _ask(self, *command: str) -> str:
        answer = subprocess.run(
            command, capture_output=True, text=True, env=self._environment, timeout=20, cwd=self.folder, check=False
        )
        return answer.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
