"""Apache ActiveMQ (Debian's package `activemq`) with one STOMP connector, JMX and advisories off.

Without persistence, or with its own store, KahaDB, which forces its journal to disk before a receipt, or each second.
"""

from __future__ import annotations

import functools
import getpass
from typing import TYPE_CHECKING

from bench.processes import Contender, Launch, executable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ACTIVEMQ", "ACTIVEMQ_ALWAYS", "ACTIVEMQ_INTERVAL"]

PACKAGE = "activemq"

SETTINGS = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="
         http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" dataDirectory="{directory}/data"
          persistent="{persistent}" useJmx="false" advisorySupport="false" schedulerSupport="false">
{store}    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""

KAHADB = """\
    <persistenceAdapter>
      <kahaDB directory="{directory}/kahadb" journalDiskSyncStrategy="{strategy}" journalDiskSyncInterval="1000"/>
    </persistenceAdapter>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage limit="512 mb"/></memoryUsage>
        <storeUsage><storeUsage limit="16 gb"/></storeUsage>
      </systemUsage>
    </systemUsage>
"""


def launch(port: int, directory: Path, strategy: str = "") -> Launch:
    for name in ("conf", "data", "tmp"):
        (directory / name).mkdir(exist_ok=True)
    settings = directory / "conf" / "activemq.xml"
    store = KAHADB.format(directory=directory, strategy=strategy) if strategy else ""
    persistent = "true" if strategy else "false"
    settings.write_text(SETTINGS.format(port=port, directory=directory, persistent=persistent, store=store), "utf-8")
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
ACTIVEMQ_ALWAYS = Contender("activemq always", "activemq", functools.partial(launch, strategy="always"), PACKAGE)
ACTIVEMQ_INTERVAL = Contender("activemq interval", "activemq", functools.partial(launch, strategy="periodic"), PACKAGE)
