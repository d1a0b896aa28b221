"""A client of locks over HTTP."""

import http.client
import json
import urllib.parse

from harness.waits import DEADLINE_SECONDS, Late, until

PORT = 9395


def listen(fleet) -> None:
    """Each proxy of a fleet that has not been started serves locks over HTTP on its own address."""
    for one in fleet.proxies:
        one.http = f"{one.host}:{PORT}"
        one.options = [*one.options, "--locks-http", one.http]


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers = status, headers
        self.json = json.loads(body) if body else None

    def __repr__(self):
        return f"{self.status} {self.json}"


def ask(one, method, name, *more, **named):
    """The final answer. 503 promises that nothing was carried out, so the request is sent again; 504 is
    no answer."""
    refused = []

    def answer():
        answered = ask_once(one, method, name, *more, **named)
        if answered.status == 504:
            raise Late(f"{method} {name}: {answered}")
        refused[:] = [answered]
        return answered if answered.status != 503 else None

    return until(answer, f"an answer to {method} {name}", told=lambda: refused)


def ask_once(
    one,
    method,
    name,
    suffix="",
    source=None,
    body=None,
    headers=None,
    timeout=DEADLINE_SECONDS,
    **parameters,
):
    """Booleans are written as the API has them."""
    parameters = {key: str(value).lower() if isinstance(value, bool) else value for key, value in parameters.items()}
    query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
    connection = http.client.HTTPConnection(one.host, PORT, timeout=timeout, source_address=(source, 0) if source else None)
    try:
        connection.request(method, f"/v1/locks/{urllib.parse.quote(name, safe='')}{suffix}{query}", body=body, headers=headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()
