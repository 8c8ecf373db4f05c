# Defaults cost seconds per job, and would mail.
s/^load_report_time .*/load_report_time 00:00:02/
s/^max_unheard .*/max_unheard 00:00:20/
s/^execd_params .*/execd_params ENABLE_ADDGRP_KILL=true,PTF_MIN_PRIORITY=0/
s/^reporting_params .*/reporting_params accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00 accounting_flush_time=00:00:00/
s/^shell_start_mode .*/shell_start_mode unix_behavior/
s/^mailer .*/mailer \/bin\/true/
