"""Apache ActiveMQ (Debian's package `activemq`) with one STOMP connector, persistence, JMX and advisories off."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

from bench.processes import Contender, Launch, executable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ACTIVEMQ"]

PACKAGE = "activemq"

SETTINGS = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="
         http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" dataDirectory="{directory}/data"
          persistent="false" useJmx="false" advisorySupport="false" schedulerSupport="false">
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""


def launch(port: int, directory: Path) -> Launch:
    for name in ("conf", "data", "tmp"):
        (directory / name).mkdir()
    settings = directory / "conf" / "activemq.xml"
    settings.write_text(SETTINGS.format(port=port, directory=directory), "utf-8")
    environment = {
        # Debian's starter would change to a user of its own, who may not read this directory.
        "ACTIVEMQ_USER": getpass.getuser(),
        "ACTIVEMQ_CONF": str(directory / "conf"),
        "ACTIVEMQ_DATA": str(directory / "data"),
        "ACTIVEMQ_TMP": str(directory / "tmp"),
        "ACTIVEMQ_PIDFILE": str(directory / "pid"),
    }
    return Launch([executable("activemq", PACKAGE), "console", f"xbean:file:{settings}"], environment)


ACTIVEMQ = Contender("activemq", "stomp", launch, PACKAGE, selects=True)
