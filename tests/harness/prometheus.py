"""A Prometheus server before parts of Shunt."""

import json
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from .ports import free_port
from .waits import until


class Prometheus:
    """A server of Debian's package, which scrapes each second. `targets` has an address for each job, and `rules` the files of rules."""

    def __init__(self, directory: Path, targets: dict, rules: list):
        self.targets = len(targets)
        self.address = f"127.0.0.1:{free_port()}"
        jobs = [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()]
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": list(map(str, rules)), "scrape_configs": jobs}
        (directory / "prometheus.yml").write_text(json.dumps(config))
        self.log = open(directory / "prometheus.log", "wb")
        arguments = ["--config.file", directory / "prometheus.yml", "--storage.tsdb.path", directory / "data", "--web.listen-address", self.address]
        self.process = subprocess.Popen(["prometheus", *arguments], stdout=self.log, stderr=self.log)

    def get(self, path: str, **parameters) -> dict:
        with urlopen(f"http://{self.address}{path}?{urlencode(parameters)}", timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list:
        return self.get("/api/v1/query", query=expression)["result"]

    def missing(self) -> str:
        """Why targets are not scraped."""
        return "\n".join(f"{each['scrapeUrl']}: {each['lastError']}" for each in self.get("/api/v1/targets")["activeTargets"] if each["lastError"])

    def scrapes(self) -> int:
        """How often the target that was scraped least was; 0 while one was not."""
        try:
            found = self.query("sum_over_time(up[1h])")
        except (URLError, ConnectionError):
            return 0
        return min(int(sample["value"][1]) for sample in found) if len(found) == self.targets else 0

    def wait_for_scrapes(self, more: int):
        """Waits for so many more scrapes of each target."""
        count = self.scrapes() + more
        until(lambda: self.scrapes() >= count, f"{count} scrapes", told=lambda: Path(self.log.name).read_text()[-2000:] + self.missing())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
