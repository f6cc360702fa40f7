"""Two hundred words that news stories use all the time: the vocabulary of the generated workloads."""

from __future__ import annotations

__all__ = ["NEWS_WORDS"]

_TEXT = """
government president minister parliament election campaign candidate party leader vote voter majority opposition
coalition policy reform budget deficit spending inflation economy growth recession market investor trader dealer
broker share stock bond yield interest rate currency dollar euro pound reserve bank lender credit mortgage loan debt
default crisis rescue company merger takeover offer stake shareholder profit loss revenue earnings forecast quarter
dividend chairman executive factory plant output production industry steel copper gold silver crude barrel refinery
pipeline energy electricity nuclear reactor coal harvest wheat maize coffee cocoa sugar cotton cattle farmer drought
flood storm hurricane earthquake volcano weather climate emission pollution forest fishery export import tariff trade
surplus cargo harbour vessel airline airport flight passenger railway highway bridge traffic accident police officer
suspect arrest trial judge court lawyer verdict appeal prison sentence murder fraud bribery scandal inquiry witness
protest strike union worker wage pension unemployment school teacher student university hospital doctor patient
vaccine disease virus outbreak medicine research scientist satellite rocket telescope computer software internet
network telephone television newspaper journalist editor music festival museum football cricket tennis champion
victory defeat coach stadium border refugee soldier army missile treaty ceasefire rebel hostage embassy ambassador
sanction summit delegation agreement village capital province region
"""

NEWS_WORDS: tuple[str, ...] = tuple(_TEXT.split())
