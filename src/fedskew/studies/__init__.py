"""Studies: methods compared under equal conditions; addresses of runs stay, and verdicts change with the changelog.

`fedskew.study` and what `fedskew.seam` names is public.
"""
