SELECT snapshot FROM rebuild_folds WHERE reporter_key = {reporter_key:String}
